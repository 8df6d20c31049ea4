// A chart as a PNG, with its title and what each line is above it, in as many rows as they need.

/** @import { Look } from "./payload.js" */
/** @typedef {{ label: string, weight: number, fill: string, colour?: number, dash?: number }} Entry of the legend */

import { el, pngOf, rasterised, svg } from "../dom.js";
import { colour, dash } from "./style.js";

const ROW = 18; // pixels of a row of the legend
const SCALE = 3; // pixels of the file to one on the screen
const COPIED = [
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "stroke-linecap",
  "stroke-linejoin",
  "fill",
  "opacity",
  "fill-opacity",
  "font-size",
];

/**
 * @param {SVGSVGElement} drawing @param {string} title @param {Look[]} legend the lines that are named
 * @returns {Promise<Blob>} a PNG
 */
export async function picture(drawing, title, legend) {
  const style = getComputedStyle(drawing);
  const ink = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const width = drawing.clientWidth;
  const holder = svg("svg", { width });
  holder.style.fontFamily = style.fontFamily;
  for (let n = 0; n < 8; n++) holder.style.setProperty(`--wc-${n}`, ink(`--wc-${n}`));
  holder.style.setProperty("--wc-lightness", ink("--wc-lightness"));
  const top = writeLegend(
    holder,
    [
      { label: title, weight: 600, fill: ink("--wc-text") },
      ...legend.map((line) => ({ ...line, weight: 400, fill: ink("--wc-muted") })),
    ],
    width,
    style.fontFamily,
  );
  const copy = withStyles(drawing);
  copy.setAttribute("y", `${top}`);
  holder.append(copy);
  const height = top + drawing.clientHeight;
  holder.setAttribute("height", `${height}`);
  holder.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const image = await rasterised(holder);
  const canvas = el("canvas", { width: SCALE * width, height: SCALE * height });
  const context = contextOf(canvas);
  context.fillStyle = ink("--wc-page");
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return pngOf(canvas, "the browser gave no picture");
}

/** @param {HTMLCanvasElement} canvas */
const contextOf = (canvas) => /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));

/**
 * Writes the entries in rows of `width` and gives the y below them.
 * @param {SVGSVGElement} holder @param {Entry[]} entries @param {number} width @param {string} family
 */
function writeLegend(holder, entries, width, family) {
  const ruler = contextOf(el("canvas"));
  let x = 6, y = 16;
  for (const { label, weight, fill, colour: number, dash: pattern = 0 } of entries) {
    const swatch = number === undefined ? 0 : 20;
    ruler.font = `${weight} 12px ${family}`;
    const taken = ruler.measureText(label).width + swatch;
    if (x > 6 && x + taken > width) [x, y] = [6, y + ROW];
    if (number !== undefined) {
      const stroke = svg("line", {
        x1: x,
        x2: x + 16,
        y1: y - 4,
        y2: y - 4,
        "stroke-width": 2,
        "stroke-dasharray": dash(pattern),
      });
      stroke.style.stroke = colour(number);
      holder.append(stroke);
    }
    holder.append(svg("text", { x: x + swatch, y, fill, "font-size": 12, "font-weight": weight }, label));
    x += taken + 12;
  }
  return y + 8;
}

/** @param {SVGSVGElement} drawing A copy that is styled by what is in it alone. */
function withStyles(drawing) {
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  const copies = /** @type {SVGElement[]} */ ([...copy.querySelectorAll("*")]);
  [...drawing.querySelectorAll("*")].forEach((node, i) => {
    const style = getComputedStyle(node);
    for (const name of COPIED) copies[i].style.setProperty(name, style.getPropertyValue(name));
  });
  return copy;
}
