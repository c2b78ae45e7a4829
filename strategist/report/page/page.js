"use strict";
// Filters hide the items of a picture or a table that do not have what is chosen.
for (const form of document.querySelectorAll("form[data-filters]")) {
  const items = document.querySelectorAll(`#${form.dataset.filters} [data-item]`);
  const said = form.querySelector("output");
  const apply = () => {
    const wanted = [...new FormData(form)].filter(([, value]) => value !== "");
    let shown = 0;
    for (const item of items) {
      const fits = wanted.every(([name, value]) => item.getAttribute(`data-of-${name.replaceAll("_", "-")}`) === value);
      item.classList.toggle("out", !fits);
      shown += fits;
    }
    said.textContent = `${shown} of ${items.length} shown`;
  };
  form.addEventListener("change", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
// What a shape says is shown beside the pointer, or where a finger touched, at once.
const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);
const words = (shape) => {
  const title = shape.querySelector?.(":scope > title");
  if (title && shape.namespaceURI.endsWith("svg")) {
    shape.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  return shape.namespaceURI?.endsWith("svg") && shape.tagName !== "svg" ? shape.getAttribute("aria-label") : null;
};
document.addEventListener("pointerover", (event) => {
  const said = words(event.target);
  tip.hidden = !said;
  tip.textContent = said ?? "";
});
document.addEventListener("pointermove", (event) => {
  if (tip.hidden) return;
  const right = Math.max(8, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8));
  const below = event.clientY + 18 + tip.offsetHeight < innerHeight;
  tip.style.left = `${right}px`;
  tip.style.top = `${below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 12}px`;
});
document.addEventListener("pointerleave", () => (tip.hidden = true));
