// The login page: the token of the link is in the fragment, so that it is in no log. A provider of logins leads back to
// this page: the script goes on, because a redirect from another site would leave the strict cookie behind.
const root = document.body.dataset.root;
const say = document.querySelector("#say");
const [token, path] = location.hash.slice(1).split("?"); // what follows the token is the page to go to

async function login() {
  history.replaceState(null, "", location.pathname);
  say.textContent = "Logging in…";
  const answer = await fetch(`${root}/login`, {
    method: "POST",
    headers: { "content-type": "application/json", "x-perdure": "1" },
    body: JSON.stringify({ token }),
  });
  if (answer.ok && path?.startsWith("/") && !path.startsWith("//")) location.replace(`${root}${path}`);
  else if (answer.ok) location.replace(location.pathname.endsWith("/login") ? `${root}/` : location.pathname);
  else if (answer.status === 429) say.textContent = "Too many logins failed from here. Wait a minute and try again.";
  else say.textContent = "This link was used, or is too old. Make another one:";
}

document.querySelector("#command").textContent += ` --url ${location.origin}${root}`;
const oidc = document.querySelector("#oidc");
const here = location.pathname.slice(root.length);
if (!here.startsWith("/login")) oidc.href += `?to=${encodeURIComponent(here + location.search)}`;

if (document.body.dataset.go) location.replace(root + document.body.dataset.go);
else if (token) login().catch(() => { say.textContent = "The server does not answer. Try again."; });
else if (here === "/login") fetch(`${root}/api/v1/whoami`).then((answer) => { if (answer.ok) location.replace(`${root}/`); }, () => {}); // logged in already
addEventListener("hashchange", () => location.reload()); // a link that was pasted here
