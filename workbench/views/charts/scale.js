// Numbers behind a chart: thinning, smoothing, axes and their labels. Pure functions, without a page.
// @ts-check

/**
 * One line of a chart. `x` ascends; `low` and `high`, where there are any, bound a band around `y`.
 * @typedef {{label: string, metric?: string, x: number[], y: number[], low?: number[] | null, high?: number[] | null,
 *   colour: number, dash: number, faint?: boolean, lost?: boolean, least: number, average?: Average | null}} Line
 * @typedef {{weight: number, last: number, power: number, values: number[]}} Average
 * @typedef {[number, number]} Range
 */

/** The first index of ascending `values` that is not below `value`. @param {number[]} values @param {number} value */
export function lowerBound(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Indices of the points to draw of x[from, to): all, or the first, least, greatest and last of each of `columns`.
 * @param {number[]} x @param {number[]} y @param {number} from @param {number} to @param {number} columns
 */
export function thinned(x, y, from, to, columns) {
  if (to - from <= 4 * columns) return Array.from({ length: to - from }, (_, i) => from + i);
  const indices = /** @type {number[]} */ ([]);
  const width = (x[to - 1] - x[from] || 1) / columns;
  for (let i = from, column = 1; i < to; column++) {
    const first = i, end = column >= columns ? Infinity : x[from] + column * width; // the last point is in the last column
    let least = i, greatest = i;
    for (; i < to && x[i] < end; i++) {
      if (y[i] < y[least]) least = i;
      if (y[i] > y[greatest]) greatest = i;
    }
    if (i === first) continue;
    for (const index of [first, Math.min(least, greatest), Math.max(least, greatest), i - 1]) {
      if (index !== indices[indices.length - 1]) indices.push(index);
    }
  }
  return indices;
}

/**
 * The exponential moving average of `y`, corrected for its start: s_t = w s_(t-1) + (1 - w) y_t from s_0 = 0, shown as
 * s_t / (1 - w^t), as in Adam and TensorBoard. It looks at no later value. `before` is an earlier result for the first
 * of these values and the same weight: the rest is added to it.
 * @param {number[]} y @param {number} weight @param {Average | null} [before] @returns {Average}
 */
export function averaged(y, weight, before = null) {
  const usable = before && before.weight === weight && before.values.length <= y.length;
  const average = usable ? before : { weight, last: 0, power: 1, values: [] };
  for (let i = average.values.length; i < y.length; i++) {
    average.last = weight * average.last + (1 - weight) * y[i];
    average.power *= weight;
    average.values.push(average.last / (1 - average.power));
  }
  return average;
}

/**
 * Round numbers from `low` to `high`, about `count` of them; whole ones if asked for.
 * @param {number} low @param {number} high @param {number} count
 */
export function ticks(low, high, count, whole = false) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = power * (/** @type {number} */ ([1, 2, 5, 10].find((fold) => fold * power >= rough * 0.999)));
  if (whole) step = Math.max(1, Math.round(step));
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  return { values: Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step), step };
}

/**
 * Round numbers from `low` to `high`, both above 0, for a logarithmic axis, each with the place it is rounded to: powers
 * of ten, with their 2 and 5 fold where there are few, or as on a linear axis where there are fewer still.
 * @param {number} low @param {number} high
 */
export function logTicks(low, high) {
  const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((last - first) / 5));
  for (const { folds, enough } of [{ folds: [1], enough: 3 }, { folds: [1, 2, 5], enough: 2 }]) {
    const candidates = [];
    for (let power = first; power <= last; power += every) {
      for (const fold of folds) candidates.push({ value: fold * 10 ** power, step: 10 ** power });
    }
    const inside = candidates.filter(({ value }) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
    if (inside.length >= enough) return inside;
  }
  const { values, step } = ticks(low, high, 4);
  return values.map((value) => ({ value, step }));
}

/**
 * A tick's label, with the digits that tell it from one `step` away.
 * @param {number} value @param {number} step @param {boolean} share
 */
export function tickLabel(value, step, share) {
  if (!value) return share ? "0%" : "0";
  const digits = (/** @type {number} */ unit) => Math.max(0, -Math.floor(Math.log10(unit) + 1e-9));
  if (share) return minus(`${(100 * value).toFixed(digits(100 * step))}%`);
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e6) return minus(value.toFixed(digits(step)));
  const places = Math.max(0, Math.floor(Math.log10(size)) - Math.floor(Math.log10(step) + 1e-9));
  return minus(value.toExponential(places)).replace("e+", "e");
}

/** @param {string} text */
const minus = (text) => text.replaceAll("-", "\u2212");

/**
 * A value as a caption says it: three or four digits, a share in per cent, a dash for none.
 * @param {number | null | undefined} value
 */
export function valueText(value, share = false) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (share) return `${minus((100 * value).toFixed(size && size < 0.1 ? 1 : 0))} %`;
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 1 ? 2 : 3;
  return minus(size === 0 ? "0" : size < 0.001 ? value.toExponential(1) : value.toFixed(digits));
}

/**
 * The ends of the x axis: the zoomed range, or everything; training steps begin at 0 and span 5 at least.
 * @param {Line[]} lines @param {Range | null} range @returns {Range}
 */
export function domain(lines, range, steps = true) {
  if (range) return range;
  const filled = lines.filter((line) => line.x.length);
  const low = Math.min(steps ? 0 : Infinity, ...filled.map((line) => line.x[0]));
  const high = Math.max(steps ? low + 5 : -Infinity, ...filled.map((line) => line.x[line.x.length - 1]));
  return low < high ? [low, high] : [low - 0.5, high + 0.5];
}

/**
 * The ends of the y axis for curves of {x, rows: [{y, indices}, …]} within [from, to]; logarithms to base 10 if `log`.
 * A share's axis begins at 0.
 * @param {{x: number[], rows: {y: number[], indices: number[]}[]}[]} curves @param {number} from @param {number} to
 * @returns {Range}
 */
export function extent(curves, from, to, share = false, log = false) {
  const zero = share && !log;
  let low = zero ? 0 : Infinity, high = zero ? 0.05 : -Infinity;
  for (const { x, rows } of curves) {
    for (const { y, indices } of rows) {
      for (const i of indices) {
        if (x[i] < from || x[i] > to) continue;
        if (y[i] < low) low = y[i];
        if (y[i] > high) high = y[i];
      }
    }
  }
  if (low > high) [low, high] = log ? [1, 10] : [0, 1];
  if (log) [low, high] = [Math.log10(low), Math.log10(high)];
  else if (low === 0 && high === 0) high = 1;
  // Values that differ by their rounding alone are one value: smoothing, or a mean of equal scores, gives such.
  if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) {
    const around = (/** @type {number} */ value) => (log ? 0.3 : (Math.abs(value) || 1) / 2);
    [low, high] = [low - around(low), high + around(high)];
  }
  const margin = (high - low) * 0.06;
  return [zero && low >= 0 ? low : low - margin, high + margin];
}

/** The x of a drawn point that is nearest to `value`; null without points. @param {Line[]} lines @param {number} value */
export function nearestX(lines, value) {
  let best = /** @type {number | null} */ (null);
  for (const { x } of lines) {
    const at = lowerBound(x, value);
    for (const candidate of [x[at - 1], x[at]]) {
      if (candidate === undefined) continue;
      if (best === null || Math.abs(candidate - value) < Math.abs(best - value)) best = candidate;
    }
  }
  return best;
}

/** The index of the last point at or before `x`, of the last point for null; -1 for none. @param {Line} line @param {number | null} x */
export function indexAt(line, x) {
  return (x === null ? line.x.length : lowerBound(line.x, x + 1e-9)) - 1;
}
