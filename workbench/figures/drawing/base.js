// What every part of the token heatmap uses: elements made without markup, and numbers as they are read.
//
// The parts share one object, `WorkbenchHeatmap`, and are loaded in the order that heatmap.py names them in.
(() => {
  const H = (globalThis.WorkbenchHeatmap ??= {});
  if (H.el) return; // a notebook holds one copy of this script per output

  const MINUS = "\u2212";

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }

  // Numbers as they are read: a true minus, no trailing noise, a dash for what is not there.
  function number(value, digits = 3) {
    if (value === null || value === undefined) return "–";
    const text = Math.abs(value).toFixed(digits);
    return Number(text) === 0 ? text : (value < 0 ? MINUS : "") + text;
  }
  function signed(value, digits = 3) {
    const text = number(value, digits);
    return value > 0 && Number(text) !== 0 ? `+${text}` : text;
  }
  function score(value) { // scores are mostly 0, 1 or a short decimal: as short as they are
    if (value === null || value === undefined) return "–";
    return number(value, Number.isInteger(value) ? 0 : Number.isInteger(value * 10) ? 1 : 2);
  }
  const glyph = (value) => (value > 0 ? "▲" : value < 0 ? "▼" : "");
  const share = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part && part / whole < 0.1 ? 1 : 0)} %` : "–");
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const meanOf = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  function stdOf(values) { // ddof = 1, as the credit is computed with
    if (values.length < 2) return null;
    const mean = meanOf(values);
    return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
  }

  Object.assign(H, { el, number, signed, score, glyph, share, count, meanOf, stdOf });
})();
