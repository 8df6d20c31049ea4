// Which colour and which dash a line has. Colours are the style sheet's, so a change of theme needs no drawing.
// @ts-check

const NAMED = 8; // colours of curves.css: --wc-0 … --wc-7
const GOLDEN = 137.508; // degrees between the hues of two further colours: the nth is far from all before
export const DASHES = ["", "6 3", "1.6 3", "8 3 1.6 3", "12 3", "3 3", "12 3 3 3", "1.6 6"];

/** The CSS colour of a line; no two of the first hundred are the same. @param {number} number */
export function colour(number) {
  if (number < NAMED) return `var(--wc-${number})`;
  return `oklch(var(--wc-lightness) 0.13 ${((number * GOLDEN) % 360).toFixed(1)})`;
}

/** @param {number} number */
export const dash = (number) => DASHES[number % DASHES.length];
