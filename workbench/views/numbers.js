// Numbers as they are read: a true minus, no trailing noise, a dash for what is not there.

export const MINUS = "\u2212";
export const NONE = "–";

/** @typedef {number | null | undefined} Value */

/** @param {Value} value @param {number} [digits] after the point */
export function number(value, digits = 3) {
  if (value === null || value === undefined) return NONE;
  const text = Math.abs(value).toFixed(digits);
  return Number(text) === 0 ? text : (value < 0 ? MINUS : "") + text;
}

/** @param {Value} value @param {number} [digits] A number with its sign, plus or minus. */
export function signed(value, digits = 3) {
  const text = number(value, digits);
  return value && value > 0 && Number(text) !== 0 ? `+${text}` : text;
}

/** @param {Value} value A score, mostly 0, 1 or a short decimal: as short as it is. */
export function score(value) {
  if (value === null || value === undefined) return NONE;
  return number(value, Number.isInteger(value) ? 0 : Number.isInteger(value * 10) ? 1 : 2);
}

/** @param {Value} value @param {number} [figures] A number with so many significant figures, without trailing zeros. */
export function precise(value, figures = 2) {
  if (value === null || value === undefined) return NONE;
  return `${Number(value.toPrecision(figures))}`.replaceAll("-", MINUS);
}

/** @param {number} value A sign that is read without colour. */
export const glyph = (value) => (value > 0 ? "▲" : value < 0 ? "▼" : "");

/** @param {number} part @param {number} whole A share in percent, with a digit more where it is small. */
export const share = (part, whole) => (whole ? percent(part / whole, part && part / whole < 0.1 ? 1 : 0) : NONE);

/** @param {Value} value A share of 1 in percent, half rounded up, also where a float32 lies just below half. */
export const percent = (value, digits = 0) =>
  value === null || value === undefined ? NONE : `${number(100 * value * (1 + 1e-7), digits)} %`;

/** @param {number} n @param {string} noun */
export const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;

/** @param {Value} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** @param {number[]} values */
export const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
