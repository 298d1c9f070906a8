"use strict";
const part = (id, page = document) => page.getElementById(id);
const picture = part("picture");

// What the pointer or the keyboard was at last is told at the bottom, and all that its owner has is marked: owners may share a colour.
let shown = "";
function tell(element) {
  if (!element) return;
  shown = element.dataset.key;
  part("about").textContent = element.querySelector("title").textContent;
  const owner = element.dataset.owner;
  for (const device of picture.querySelectorAll("[data-owner]")) {
    device.classList.toggle("same", device.dataset.owner === owner);
  }
}
// The picture is there for several widths of screen, and one of them is shown.
const visible = () => [...picture.children].find((layout) => getComputedStyle(layout).display !== "none") ?? picture;
const find = (key) => visible().querySelector(`[data-key="${CSS.escape(key)}"]`);
for (const event of ["pointerover", "focusin"]) {
  picture.addEventListener(event, (e) => tell(e.target.closest("[data-key]")));
}

// Tab goes from card to card, the arrow keys to the devices on it too.
picture.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
  const all = [...visible().querySelectorAll("[data-key]")];
  const next = all[all.indexOf(event.target.closest("[data-key]")) + step];
  if (next) {
    event.preventDefault();
    next.focus();
  }
});

// A click on what an owner has, or Enter, shows what was decided for it.
async function explain(owner) {
  if (!owner) return;
  part("explain").hidden = false;
  part("explained").textContent = owner;
  part("explanation").textContent = "…";
  let text;
  try {
    const answer = await fetch("explain?" + new URLSearchParams({ owner }), { signal: AbortSignal.timeout(10000) });
    text = await answer.text();
  } catch {
    text = "tandem status --serve does not answer";
  }
  if (part("explained").textContent === owner) part("explanation").textContent = text;
}
for (const place of [picture, part("notes")]) {
  place.addEventListener("click", (event) => explain(event.target.closest("[data-owner]")?.dataset.owner));
}
picture.addEventListener("keydown", (event) => {
  if (event.key === "Enter") explain(event.target.closest("[data-owner]")?.dataset.owner);
});
part("close").addEventListener("click", () => { part("explain").hidden = true; });

// The page asks for itself again, and puts the parts that change in the place of its own. The picture of the past stays until
// there is a new one.
const every = Number(document.body.dataset.every);
let last = "";
let timer;
let asking = false;

function renew(page) {
  const focused = picture.contains(document.activeElement) ? document.activeElement.dataset.key : "";
  for (const id of ["picture", "notes", "devices"]) {
    part(id).replaceChildren(...part(id, page).childNodes);
  }
  if (focused) find(focused)?.focus({ preventScroll: true });
  if (shown) tell(find(shown));
}

function say(problem) {
  document.body.classList.toggle("stale", problem !== "");
  if (part("problem").textContent !== problem) part("problem").textContent = problem;
  if (problem === "") part("live").textContent = "as of " + new Date().toLocaleTimeString();
}

async function ask() {
  let text;
  try {
    const answer = await fetch(location.href, { cache: "no-cache", signal: AbortSignal.timeout(10000) });
    text = await answer.text();
  } catch {
    say("Not up to date: tandem status --serve does not answer. It is asked again every " + every / 1000 + " s.");
    return;
  }
  const page = new DOMParser().parseFromString(text, "text/html");
  const problem = part("problem", page)?.textContent ?? text;
  if (problem === "" && text !== last) {
    renew(page);
    last = text;
  }
  say(problem);
}

async function keepAsking() {
  if (asking || document.hidden) return;
  asking = true;
  clearTimeout(timer);
  await ask();
  asking = false;
  timer = setTimeout(keepAsking, every);
}

document.addEventListener("visibilitychange", keepAsking);
keepAsking();
