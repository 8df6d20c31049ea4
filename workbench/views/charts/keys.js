// What the keyboard does on a chart. A pure function from a key to the change that it asks for.
// @ts-check

import { domain, lowerBound } from "./scale.js";

/** @typedef {import("./scale.js").Line} Line */
/** @typedef {import("./scale.js").Range} Range */
/** @typedef {{point?: number | null, pick?: number, zoom?: Range | null}} Change */

const SMALLEST = 2; // steps that can be zoomed to
const ZOOMS = { "+": 0.5, "=": 0.5, "-": 2 };

/**
 * The change that a key asks of a chart; {} for one that does nothing there, null for one that is not the chart's.
 * Arrows, Home and End move the crosshair over the points in sight, Enter picks its step, + and - zoom about it, 0 shows
 * everything, Escape takes the crosshair away.
 * @param {string} key
 * @param {{lines: Line[], range: Range | null, pointed: number | null, steps?: boolean}} chart
 * @returns {Change | null}
 */
export function keyChange(key, { lines, range, pointed, steps = true }) {
  if (!lines.some((line) => line.x.length)) return null;
  const [from, to] = domain(lines, range, steps);
  switch (key) {
    case "ArrowLeft":
      return beside(lines, from, to, pointed ?? to + 1, -1);
    case "ArrowRight":
      return beside(lines, from, to, pointed ?? from - 1, 1);
    case "Home":
      return beside(lines, from, to, from - 1e-6, 1);
    case "End":
      return beside(lines, from, to, to + 1e-6, -1);
    case "Enter":
      return pointed === null ? {} : { pick: pointed };
    case "Escape":
      return { point: null };
    case "0":
      return { zoom: null };
    case "+":
    case "=":
    case "-":
      return zoomed(domain(lines, null, steps), [from, to], pointed, ZOOMS[key], steps ? SMALLEST : 0);
    default:
      return null;
  }
}

/**
 * To the point in sight that is next before (`by` below 0) or after a place.
 * @param {Line[]} lines @param {number} from @param {number} to @param {number} place @param {number} by
 */
function beside(lines, from, to, place, by) {
  const next = lines.map(({ x }) => x[by < 0 ? lowerBound(x, place) - 1 : lowerBound(x, place + 1e-9)]);
  const inSight = next.filter((x) => x >= from && x <= to);
  if (!inSight.length) return {};
  return { point: by < 0 ? Math.max(...inSight) : Math.min(...inSight) };
}

/**
 * @param {Range} whole @param {Range} shown @param {number | null} pointed @param {number} times @param {number} least
 * @returns {Change}
 */
function zoomed(whole, [from, to], pointed, times, least) {
  const middle = pointed ?? (from + to) / 2, half = (times * (to - from)) / 2;
  const wanted = /** @type {Range} */ ([Math.max(whole[0], middle - half), Math.min(whole[1], middle + half)]);
  if (wanted[0] <= whole[0] && wanted[1] >= whole[1]) return { zoom: null };
  return wanted[1] - wanted[0] >= least ? { zoom: wanted } : {};
}
