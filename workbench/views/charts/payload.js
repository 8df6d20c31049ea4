// The types of what charts draw: JSON as figures/curves.py, figures/overlay.py and figures/lines.py make it (each typedef
// there is the TypedDict of the same name; a test holds their keys against each other), and what the scripts make of it.
// Nothing imports this module when it runs.

/** @import { Line } from "./scale.js" */

/** @typedef {string | number[]} Packed Numbers, or base64 of them as little-endian float32 until they are first drawn. */

/**
 * @typedef {Object} SeriesPayload A line of a panel that grows.
 * @property {string} metric
 * @property {string} label
 * @property {number} style numbers its colour and dash
 */

/**
 * @typedef {Object} PanelPayload
 * @property {string} key
 * @property {string} title
 * @property {string} about
 * @property {boolean} share whether its values are between 0 and 1
 * @property {boolean} more whether it is folded away
 * @property {boolean} named whether a line that is alone is called by its name
 * @property {string} x what is counted
 * @property {SeriesPayload[]} series
 */

/**
 * @typedef {Object} Block A long log of metrics, packed.
 * @property {string[]} steps
 * @property {Record<string, [which: number, values: string]>} values by metric, and which of the `steps` are its steps
 */

/**
 * @typedef {Object} LinePayload A line of a chart that is stored.
 * @property {string} label
 * @property {number} colour
 * @property {number} dash
 * @property {Packed} x
 * @property {Packed} y
 * @property {Packed | null} low
 * @property {Packed | null} high
 */

/**
 * @typedef {Object} ChartPayload A stored chart with its lines.
 * @property {string} key
 * @property {string} title
 * @property {string} about
 * @property {boolean} share
 * @property {boolean} more
 * @property {boolean} named
 * @property {string} x
 * @property {LinePayload[]} lines
 */

/**
 * @typedef {Object} ChartsPayload What a notebook's output or a file draws.
 * @property {ChartPayload[]} panels
 * @property {string} name begins the names of files
 * @property {string} key of the stored zoom; "" for none
 */

/**
 * @typedef {Object} RunLine One run of a line.
 * @property {string} name
 * @property {Packed | null} x null where it has a value at each of the line's steps
 * @property {Packed} y
 */

/**
 * @typedef {Object} OverlayLine A metric of a configuration.
 * @property {number} configuration
 * @property {number} series
 * @property {Packed} x
 * @property {Packed} mean
 * @property {Packed | null} low
 * @property {Packed | null} high
 * @property {RunLine[]} runs
 */

/**
 * @typedef {Object} OverlayPanel A panel with the lines of every configuration.
 * @property {string} key
 * @property {string} title
 * @property {string} about
 * @property {boolean} share
 * @property {boolean} more
 * @property {boolean} named
 * @property {string} x
 * @property {SeriesPayload[]} series
 * @property {OverlayLine[]} lines
 */

/** @typedef {Omit<Line, "least">} Drawn A line that a stored panel draws. */
/** @typedef {{ label: string, colour?: number, dash: number }} Look How a line is drawn; without a colour in the text's. */
/** @typedef {[name: string, x: number[], values: number[]]} Column of a file */

/**
 * @typedef {Omit<PanelPayload, "series"> & {
 *   series?: SeriesPayload[],
 *   lines?: LinePayload[] | (() => Drawn[]),
 *   dashes?: Look[],
 *   columns?: () => Column[],
 * }} Panel What a figure draws: lines that grow with the metrics of its `series`, or stored ones. `dashes` say what those
 *   of several metrics mean where values are read beside the crosshair; `columns` are those of its file.
 */

export {};
