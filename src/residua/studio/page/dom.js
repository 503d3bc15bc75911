// Building the page: elements with text only, never markup from a string.

/**
 * An element. Attributes whose names start with "on" are listeners; false and null ones are left out.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | number | null | undefined | false)} children
 * @returns {any}
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(2)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** @param {string} id @returns {any} */
export const byId = (id) => document.getElementById(id);

/**
 * A part of the page that is drawn anew when what it shows has changed, keeping the focus and what is open.
 * @param {string} id
 * @param {(state: any) => any} slice what it depends on
 * @param {(slice: any, state: any) => (Node | null | false)[]} draw
 */
export function panel(id, slice, draw) {
  let last = "";
  return (/** @type {any} */ state) => {
    const wanted = slice(state), text = JSON.stringify(wanted);
    if (text === last) return;
    last = text;
    const root = byId(id), focused = document.activeElement?.id;
    const open = new Set([...root.querySelectorAll("details[open]")].map((each) => each.id));
    const typed = new Map([...root.querySelectorAll("[data-draft]")].map((each) => [each.id, each.value]));
    root.replaceChildren(...draw(wanted, state).filter(Boolean));
    for (const each of root.querySelectorAll("details")) if (each.id && open.has(each.id)) each.open = true;
    for (const each of root.querySelectorAll("[data-draft]")) {
      if (typed.get(each.id)) each.value = typed.get(each.id);
    }
    if (focused && root.querySelector(`#${CSS.escape(focused)}`)) byId(focused).focus({ preventScroll: true });
  };
}

/**
 * A field with its label.
 * @param {string} id @param {string} words @param {Record<string, any>} attributes
 */
export const field = (id, words, attributes) =>
  h("div", { class: "field" }, h("label", { for: id }, words), h("input", { id, ...attributes }));

/**
 * A choice with its label.
 * @param {string} id @param {string} words @param {[string, string][]} options
 * @param {string} chosen @param {(value: string) => void} changed
 */
export const choice = (id, words, options, chosen, changed) =>
  h("div", { class: "field" }, h("label", { for: id }, words),
    h("select", { id, onchange: (/** @type {any} */ event) => changed(event.target.value) },
      options.map(([value, text]) => h("option", { value, selected: value === chosen }, text))));

/** @param {number} number @returns {string} three digits, as people write them */
export function figure(number) {
  if (!Number.isFinite(number)) return "–";
  if (number === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(number)));
  if (size >= 3) return Math.round(number).toLocaleString("en");
  return number.toFixed(Math.min(6, Math.max(0, 2 - size))).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
}

/** @param {number} share @returns {string} */
export const percent = (share) =>
  share >= 10 ? `${figure(share)}×` : share >= 0.0995 ? `${Math.round(100 * share)}%` : `${figure(100 * share)}%`;
