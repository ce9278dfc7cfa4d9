// Replaces what changes on the page every few seconds, unless it is paused, hidden, or somebody works in it.
"use strict";
const EVERY_MS = 5000;
const button = document.getElementById("pause");
let paused = false;

function isBusy() {
  const live = document.getElementById("live");
  return paused || document.hidden || live.contains(document.activeElement) || !getSelection().isCollapsed;
}

async function refresh() {
  if (isBusy()) return;
  const response = await fetch("/status", { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(response.statusText);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (isBusy()) return;
  document.getElementById("live").replaceWith(page.getElementById("live"));
  document.getElementById("at").textContent = page.getElementById("at").textContent;
}

function again() {
  refresh()
    .then(() => document.body.removeAttribute("data-lost"))
    .catch(() => document.body.setAttribute("data-lost", ""))
    .finally(() => setTimeout(again, EVERY_MS));
}

button.hidden = false;
button.addEventListener("click", () => {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  button.textContent = paused ? "Go on" : "Pause";
});
setTimeout(again, EVERY_MS);
