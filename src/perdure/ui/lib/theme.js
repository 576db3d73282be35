// The theme: system, light or dark; kept in this browser only.
const NAMES = ["system", "light", "dark"];
let now = localStorage.getItem("perdure.theme") ?? "system";

function show() {
  if (now === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = now;
}

export const theme = () => now;

export function next() {
  now = NAMES[(NAMES.indexOf(now) + 1) % NAMES.length];
  localStorage.setItem("perdure.theme", now);
  show();
  return now;
}

show();
