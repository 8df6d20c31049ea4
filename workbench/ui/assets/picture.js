// A picture of the heatmap: its element, laid out by the browser itself inside an SVG image.

import { el, pngOf, rasterised, svg } from "../../views/dom.js";

const LARGEST_SIDE = 16384; // pixels that browsers draw into one canvas
const LARGEST_AREA = 120e6;
const MARGIN = 16;
const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const NO_PICTURE = ".details, .hand, .tip, [hidden], .popover, .act, .finder";
const WHOLE =
  ".wh.wh :is(.rollout, .step) { content-visibility: visible; } .wh :is(.overview, .prompt) { max-height: none; }";

/** @param {HTMLElement} drawing @returns {Promise<Blob>} a PNG */
export async function picture(drawing) {
  const width = Math.ceil(drawing.getBoundingClientRect().width);
  const copy = still(drawing);
  const box = boxed(copy, width, await rulesOf("fonts.css") + await rulesOf("heatmap.css"));
  const [w, h] = [width + 2 * MARGIN, await heightOf(box, width + 2 * MARGIN)];
  const foreign = svg("foreignObject", { width: "100%", height: "100%" }, box);
  const image = await rasterised(svg("svg", { width: w, height: h, viewBox: `0 0 ${w} ${h}` }, foreign));
  const scale = scaleOf(w, h);
  const canvas = el("canvas", { width: Math.floor(w * scale), height: Math.floor(h * scale) });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(scale, scale);
  context.drawImage(image, 0, 0);
  return pngOf(canvas, "the group is too large for a picture; take the HTML file");
}

/** @param {string} name The text of a style sheet (rules that are read lose a font said by a variable), typefaces in it. */
async function rulesOf(name) {
  const href = [...document.styleSheets].find(({ href }) => href?.includes(name))?.href ?? location.href;
  let rules = await (await fetch(href)).text();
  for (const [url] of rules.matchAll(/"\S+\.woff2"/g)) {
    const bytes = new Uint8Array(await (await fetch(new URL(url.slice(1, -1), href))).arrayBuffer());
    const text = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
    rules = rules.replace(url, `data:font/woff2;base64,${btoa(text)}`);
  }
  return rules;
}

/** @param {HTMLElement} box @param {number} width How high it is in a document of its own, as it will be in the image. */
async function heightOf(box, width) {
  const place = `position: absolute; left: -99999px; top: 0; width: ${width}px; height: 10px`;
  const frame = el("iframe", {
    style: place,
    "aria-hidden": "true",
    srcdoc: '<!doctype html><body style="margin: 0">',
  });
  const loaded = new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
  document.body.append(frame);
  await loaded;
  frame.contentDocument?.body.append(box);
  box.getBoundingClientRect(); // asks for the typefaces
  await frame.contentDocument?.fonts.ready;
  const { height } = box.getBoundingClientRect();
  document.adoptNode(box);
  frame.remove();
  return Math.ceil(height);
}

/** @param {number} width @param {number} height Pixels of the picture for each of the page, as far as canvases reach. */
export const scaleOf = (width, height) =>
  Math.min(2, LARGEST_SIDE / Math.max(width, height), Math.sqrt(LARGEST_AREA / (width * height)));

/** @param {HTMLElement} copy @param {number} width @param {string} rules The copy with its style, on a ground of its theme. */
function boxed(copy, width, rules) {
  const dark = document.body.classList.contains("dark");
  const ground = `padding: ${MARGIN}px; background: ${dark ? "#0e1013" : "#fff"}; width: ${width}px;`;
  const style = el("style", {}, rules + WHOLE);
  return el("div", { class: dark ? "dark" : "", style: ground }, style, copy);
}

/** @param {HTMLElement} drawing A copy in which controls are the text they show, and every text may stand in XML. */
function still(drawing) {
  const copy = /** @type {HTMLElement} */ (drawing.cloneNode(true));
  const selects = drawing.querySelectorAll("select");
  copy.querySelectorAll("select").forEach((select, i) => {
    select.replaceWith(el("b", {}, selects[i].selectedOptions[0]?.textContent ?? ""));
  });
  for (const node of copy.querySelectorAll(NO_PICTURE)) node.remove();
  const walker = document.createTreeWalker(copy, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = /** @type {Text} */ (walker.currentNode);
    text.data = text.data.replace(NOT_XML, "\ufffd");
  }
  for (const node of /** @type {NodeListOf<HTMLElement>} */ (copy.querySelectorAll("[data-mark]"))) {
    node.dataset.mark = node.dataset.mark?.replace(NOT_XML, "\ufffd");
  }
  return copy;
}
