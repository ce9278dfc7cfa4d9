// Replaces what changes on the page every few seconds, unless it is paused, hidden, or somebody works in it.
"use strict";
const EVERY_MS = 5000;
const button = document.getElementById("pause");
let paused = false;

function parts(page) {
  return [...page.querySelectorAll(".live")];
}

function isBusy() {
  const isUsed = parts(document).some((part) => part.contains(document.activeElement));
  return paused || document.hidden || isUsed || !getSelection().isCollapsed;
}

async function refresh() {
  if (isBusy()) return;
  const response = await fetch(location.href, { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(response.statusText);
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  if (isBusy()) return;
  for (const part of parts(document)) part.replaceWith(page.getElementById(part.id));
  document.getElementById("at").textContent = page.getElementById("at").textContent;
}

function again() {
  refresh()
    .then(() => document.body.removeAttribute("data-lost"))
    .catch(() => document.body.setAttribute("data-lost", ""))
    .finally(() => setTimeout(again, EVERY_MS));
}

if (document.querySelector(".live section")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Go on" : "Pause";
  });
  setTimeout(again, EVERY_MS);
}
