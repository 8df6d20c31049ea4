// The types of what the Runs tab asks the server: each typedef is the TypedDict of the same name in handlers/runs.py; a
// test holds their keys, and what each call answers, against each other. Nothing imports this module when it runs.

/** @import { OverlayPanel } from "../../../views/charts/payload.js" */
/** @import { Call } from "../payloads.js" */
/** @import { Answer } from "../train/payloads.js" */

/**
 * @typedef {Object} RunsValue
 * @property {string} downloads the address of runs' files
 * @property {number} most runs that may be chosen
 */

/**
 * @typedef {Object} RunRow A run; what its metrics say is missing where it cannot be read.
 * @property {string} name
 * @property {string} state
 * @property {string} reason
 * @property {boolean} final
 * @property {boolean} resumable
 * @property {number | null} step
 * @property {number | null} total
 * @property {number | null} created in seconds, as all times
 * @property {string | null} task
 * @property {string | null} policy
 * @property {string | null} scheme
 * @property {number | null} seed
 * @property {string | null} gives
 * @property {string[]} policies what names its policy's checkpoints, the newest first
 * @property {string} note
 * @property {string[]} tags
 * @property {number | null} [reward]
 * @property {string} [reward_metric]
 * @property {number | null} [accuracy_best]
 * @property {number | null} [accuracy_last]
 * @property {number | null} [seconds]
 * @property {number} [corrupt] rows of its metrics
 * @property {string[]} [alarms] what to look at in its curves
 * @property {string} [problem] why its metrics cannot be read
 */

/**
 * @typedef {Object} TrashedPayload A deleted run.
 * @property {string} entry what it is restored by
 * @property {string} name
 * @property {number} deleted
 */

/**
 * @typedef {Object} Table
 * @property {RunRow[]} runs the newest
 * @property {number} more runs there are
 * @property {TrashedPayload[]} trash
 */

/**
 * @typedef {Object} Seed A run of a configuration.
 * @property {string} name
 * @property {number} seed
 */

/**
 * @typedef {Object} Configuration Runs that differ in the seed alone.
 * @property {string} key
 * @property {string} label
 * @property {Seed[]} runs
 */

/**
 * @typedef {Object} Difference A field of the configuration, with one value a run.
 * @property {string} field
 * @property {string[]} values
 */

/**
 * @typedef {Object} Missing A run that cannot be read.
 * @property {string} run
 * @property {string} error
 */

/**
 * @typedef {Object} Sides Two runs' newest answers to a prompt that both watch.
 * @property {number} index
 * @property {number} count of such prompts
 * @property {number[]} steps
 * @property {string[]} drawings
 * @property {string} error why there is none, or ""
 */

/**
 * @typedef {Object} Overlay Chosen runs on the same curves.
 * @property {string} axis what they are drawn over
 * @property {string[]} axes what they may be
 * @property {Configuration[]} configurations
 * @property {OverlayPanel[]} panels
 * @property {Difference[]} differences
 * @property {string[]} order the runs of the differences' values
 * @property {Missing[]} missing
 * @property {number} dropped runs
 */

/**
 * @typedef {Object} Removed
 * @property {TrashedPayload[]} moved
 * @property {string[]} problems
 */

/**
 * @typedef {Object} Restored
 * @property {string[]} restored
 * @property {string[]} problems
 */

/**
 * @typedef {Object} RunsServer What the Runs tab may ask.
 * @property {Call<{}, Table>} table
 * @property {Call<{ runs: string[], axis: string }, Overlay>} overlay
 * @property {Call<{ runs: string[], index: number }, Sides>} side
 * @property {Call<{ run: string, name: string, note: string, tags: string[] }, Answer>} say_of
 * @property {Call<{ runs: string[] }, Removed>} remove
 * @property {Call<{ entries: string[] }, Restored>} undelete
 * @property {Call<{ run: string }, Answer>} resume
 */

export {};
