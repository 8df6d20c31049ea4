// Elements made without markup, and what pages and notebooks do with them alike.

/**
 * @typedef {Node | string | number | null | undefined | false} Child
 * @typedef {Record<string, string | number | boolean | null | undefined | ((event: any) => unknown)>} Attributes
 */

const SVG = "http://www.w3.org/2000/svg";
const URL_LIFETIME = 60_000; // milliseconds until the object URL of a file is let go

/**
 * An element with attributes, listeners ("onclick" and the like) and children; what is null, undefined or false is left
 * out.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag @param {Attributes} [attributes] @param {...Child} children
 */
export const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

/**
 * The same in SVG.
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag @param {Attributes} [attributes] @param {...Child} children
 */
export const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

/**
 * A table: the heads of its columns, and rows of a head and cells, or rows as they are.
 * @param {Attributes} attributes @param {Child[]} heads @param {(Child[] | HTMLTableRowElement)[]} rows
 */
export function tableOf(attributes, heads, rows) {
  const cell = (/** @type {"th" | "td"} */ tag, /** @type {Attributes} */ of) => (/** @type {Child} */ content) =>
    content instanceof HTMLTableCellElement ? content : el(tag, of, content);
  const body = rows.map((row) =>
    row instanceof HTMLElement
      ? row
      : el("tr", {}, ...row.slice(0, 1).map(cell("th", { scope: "row" })), ...row.slice(1).map(cell("td", {})))
  );
  const head = el("thead", {}, el("tr", {}, ...heads.map(cell("th", { scope: "col" }))));
  return el("table", attributes, head, el("tbody", {}, ...body));
}

/**
 * @template {Element} Made
 * @param {Made} node @param {Attributes} attributes @param {Child[]} children
 */
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(child instanceof Node ? child : `${child}`);
    }
  }
  return node;
}

/** @param {Element} node @param {string} text Sets a text only where it differs, so that changes alone are announced. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** @param {HTMLElement} node @param {string | null | undefined} text Sets a message, hiding its node where there is none. */
export function say(node, text) {
  node.hidden = !text;
  setText(node, text ?? "");
}

/** @param {Element} node @param {Element[]} children Gives it these; what it has of them at the same place stays. */
export function replaceEach(node, children) {
  children.forEach((child, i) => {
    const before = node.children[i];
    if (!before) node.append(child);
    else if (!before.isEqualNode(child)) before.replaceWith(child);
  });
  while (node.children.length > children.length) node.lastElementChild?.remove();
}

/** @type {WeakMap<Element, string>} */
const drawnFor = new WeakMap();

/**
 * Draws what `node` holds, but not again for the `key` it was drawn for last: what has the focus there keeps it.
 * @param {Element} node @param {unknown} key @param {() => void} draw
 */
export function once(node, key, draw) {
  const text = JSON.stringify(key);
  if (drawnFor.get(node) === text) return;
  drawnFor.set(node, text);
  draw();
}

/** @param {Blob} blob The address of a file, for a minute. */
export function objectUrl(blob) {
  const url = URL.createObjectURL(blob);
  setTimeout(() => URL.revokeObjectURL(url), URL_LIFETIME);
  return url;
}

/** A file's name of parts. @param {...string} parts */
export const fileName = (...parts) => parts.filter(Boolean).join("-").replace(/[^\w.-]+/g, "_");

/** @param {string} name @param {Blob} blob Saves a file. */
export function download(name, blob) {
  const anchor = el("a", { href: objectUrl(blob), download: name, hidden: true });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
}

/** @param {string} text Puts a text on the clipboard; false where the browser refuses. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** @param {SVGElement} node An SVG element as an image, styled by what is in it alone. */
export async function rasterised(node) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(node))}`;
  await image.decode();
  return image;
}

/** @param {HTMLCanvasElement} canvas @param {string} refusal what to say where the browser gives no picture */
export async function pngOf(canvas, refusal) {
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!blob) throw new Error(refusal);
  return blob;
}
