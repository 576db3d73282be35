// The theme: system, light or dark; kept in this browser only.
const NAMES = ["system", "light", "dark"];
let now = localStorage.getItem("perdure.theme") ?? "system";

function show() {
  if (now === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = now;
}

export const theme = () => now;

export function choose(name) {
  now = name;
  localStorage.setItem("perdure.theme", now);
  show();
  return now;
}

export const next = () => choose(NAMES[(NAMES.indexOf(now) + 1) % NAMES.length]);

// How far the rows of tables are apart.
export const density = () => localStorage.getItem("perdure.density") ?? "compact";
export function keepDensity(name) {
  localStorage.setItem("perdure.density", name);
  showDensity();
}

function showDensity() {
  if (density() === "roomy") document.documentElement.dataset.density = "roomy";
  else delete document.documentElement.dataset.density;
}

show();
showDensity();
