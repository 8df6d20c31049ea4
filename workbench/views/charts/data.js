// A chart's numbers on their way in and out: columns packed as base64, and CSV.
// @ts-check

const PLACE = "<name>"; // of a reward function's name in a metric

/** Numbers from base64 of little-endian float32. @param {string} text @returns {number[]} */
export function numbers(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  const packed = new Float32Array(bytes.buffer);
  /** @type {number[]} */
  const unpacked = [];
  for (let i = 0; i < packed.length; i++) unpacked.push(packed[i]); // Array.from takes several times as long
  return unpacked;
}

/**
 * Turns the packed columns of `record` into numbers, in place and once.
 * @template {object} T @template {keyof T} Name @param {T} record @param {...Name} names
 * @returns {Omit<T, Name> & { [key in Name]: Exclude<T[key], string> }}
 */
export function unpack(record, ...names) {
  const columns = /** @type {Record<keyof T, unknown>} */ (record);
  for (const name of names) {
    const column = columns[name];
    if (typeof column === "string") columns[name] = numbers(column);
  }
  return /** @type {ReturnType<typeof unpack<T, Name>>} */ (record);
}

/** The least of `values` from an index on, and of `least`. @param {number[]} values */
export function leastOf(values, from = 0, least = Infinity) {
  for (let i = from; i < values.length; i++) if (values[i] < least) least = values[i];
  return least;
}

/**
 * Metrics rows as columns: {metric: [steps, values]}.
 * @param {Record<string, unknown>[]} rows
 */
export function columnsOf(rows) {
  const columns = /** @type {Record<string, [number[], number[]]>} */ ({});
  for (const row of rows) {
    for (const [metric, value] of Object.entries(row)) {
      if (typeof value !== "number") continue;
      const [steps, values] = (columns[metric] ??= [[], []]);
      steps.push(/** @type {number} */ (row.step));
      values.push(value);
    }
  }
  return columns;
}

/** Whether a metric of a panel stands for one line a reward function. @param {string} metric */
export const isTemplate = (metric) => metric.includes(PLACE);

/** The name that `metric` has in the place of a template's; null where it is not of that form. @param {string} template @param {string} metric */
export function nameIn(template, metric) {
  const [before, after] = template.split(PLACE);
  const fits = after !== undefined && metric.length > before.length + after.length &&
    metric.startsWith(before) && metric.endsWith(after);
  return fits ? metric.slice(before.length, metric.length - after.length) : null;
}

/** A file's name of parts. @param {...string} parts */
export const fileName = (...parts) => parts.filter(Boolean).join("-").replace(/[^\w.-]+/g, "_");

/** @param {string} text A cell of CSV; what a spreadsheet would take for a formula is led by an apostrophe. */
export const csvCell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;

/**
 * One row an x and one column a line, [[name, x, values], …]; empty where a line has no value.
 * @param {[string, number[], number[]][]} columns @param {string} [first] heading of the x column
 */
export function csv(columns, first = "step") {
  const places = [...new Set(columns.flatMap(([, x]) => x))].sort((a, b) => a - b);
  const values = columns.map(([, x, y]) => new Map(x.map((place, i) => [place, y[i]])));
  const written = (/** @type {number | null | undefined} */ value) =>
    value === undefined || value === null ? "" : Number(value.toPrecision(7));
  const rows = places.map((place) => [written(place), ...values.map((column) => written(column.get(place)))].join(","));
  const head = [first === "step" ? first : csvCell(first), ...columns.map(([name]) => csvCell(name))].join(",");
  return `${[head, ...rows].join("\n")}\n`;
}
