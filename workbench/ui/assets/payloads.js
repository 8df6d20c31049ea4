// The types of what the page draws and of what it asks the server: each is the TypedDict of the same name in
// ui/payloads.py; a test holds their keys against each other. Nothing imports this module when it runs.

/** @import { GroupPayload, NoSpreadPayload, TermPayload } from "../../views/drawing/payload.js" */

/**
 * @template [Server=unknown]
 * @typedef {Object} Handles What Gradio hands an element's script.
 * @property {HTMLElement} element
 * @property {{ value: string, rows?: string, chosen?: string }} props
 * @property {(name: "value" | "rows" | "chosen", update: () => void) => void} watch
 * @property {Server} server the functions that the element was given
 * @property {(event: string, data?: Record<string, unknown>) => void} trigger
 */

/**
 * @template Asked, Answer
 * @typedef {(asked: Asked) => Promise<Answer | undefined>} Call A function of the server; undefined where it did not
 *   answer, see `answerOf` in widget.js.
 */

/**
 * @typedef {Object} NotePayload A message beside a control.
 * @property {string} text
 * @property {"error" | "warning" | "info" | "plain"} level
 * @property {number | null} line of the code editor to highlight, from 1
 * @property {string} detail
 * @property {string | null} editor elem_id of that editor
 * @property {string[]} fields elem_ids of the fields that the message is about
 * @property {string | null} action label of a button behind it
 */

/**
 * @typedef {Object} HandLabel A step's label.
 * @property {number} start in characters, not UTF-16 units
 * @property {number} end
 * @property {number} label 1 right, 0 neutral, -1 wrong
 */

/**
 * @typedef {Object} HandLabelsPayload
 * @property {HandLabel[][]} completions
 * @property {string} table the file that holds all labels
 * @property {string} error why nothing was kept, or ""
 */

/**
 * @typedef {Object} ProbePair A cell of the probes' table.
 * @property {number} rollout from 0
 * @property {string[]} drawings the answer before and after the edit
 * @property {number[]} first advantage of its first token, before and after
 * @property {number[]} at_edit that of the token at the edit
 */

/**
 * @typedef {Object} LabelsFile
 * @property {string} name
 * @property {string} text
 */

/** @typedef {{ prompt: string, completion: string, steps: [number, number][], k: number, label: number | null }} MarkAsked */

/**
 * @typedef {Object} LabelServer What is asked to label steps by hand.
 * @property {Call<{ prompt: string, completions: string[] }, HandLabelsPayload>} labels_of
 * @property {Call<MarkAsked, HandLabelsPayload>} mark_step
 * @property {Call<{ layout: string }, LabelsFile>} labels_file
 */

/**
 * @typedef {Object} FactsPayload A list of terms.
 * @property {[string, string][]} rows
 * @property {string} kind of what they are about: "model", "values" or ""
 */

/**
 * @typedef {Object} HeaderPayload
 * @property {string} title
 * @property {string} loop
 */

/**
 * @typedef {Object} FieldPayload A field of Train's form.
 * @property {string} path
 * @property {string} id
 * @property {string} label
 * @property {string} help
 * @property {"number" | "text" | "switch" | "choice"} kind
 * @property {string[]} choices
 * @property {boolean} whole
 * @property {boolean} optional
 * @property {string[] | null} methods whose form it is in, null for all
 * @property {boolean} folded among further settings
 * @property {string} placeholder
 */

/**
 * @typedef {Object} RunFormPayload What a form is made of.
 * @property {string} form the name of its values
 * @property {FieldPayload[]} fields
 * @property {Record<string, string>} methods what each does, in a line
 */

/**
 * @typedef {Object} RowsPayload What a task's section makes of its data.
 * @property {string} text how many rows there are, or why there are none
 * @property {"error" | "info"} level
 * @property {[string, string][][]} rows the first ones, by column
 */

/**
 * @typedef {Object} PolicyStatusPayload
 * @property {string} state
 * @property {string} policy
 * @property {number} seconds
 * @property {string} message
 * @property {string} device
 * @property {number | null} parameters
 * @property {string} decoding how its tokens are decoded, with the reason in brackets
 */

/**
 * @typedef {Object} StreamPayload A group that is being sampled.
 * @property {string[]} texts
 * @property {boolean[]} finished
 * @property {string} prompt
 */

/**
 * @typedef {Object} DrawingMessage What Inspect's right side is to do; an empty one changes nothing.
 * @property {GroupPayload} [show] draw a credit
 * @property {string} [about] of the group that is shown
 * @property {string} [other] why no second scheme is drawn
 * @property {string} [stale] keep what is drawn: it is older than the controls, and why
 * @property {GroupPayload} [group] drawn where that is of another group
 * @property {string} [busy] dim what is drawn, and say what is going on
 * @property {StreamPayload} [stream] show texts as they grow
 * @property {boolean} [back] what was going on ended without a new group
 * @property {string} [empty] there is no group; what to do next
 */

/**
 * @typedef {Object} FindingPayload
 * @property {string} name
 * @property {"ok" | "check" | "stop"} level
 * @property {string} value
 * @property {string} meaning
 * @property {string} advice
 */

/**
 * @typedef {Object} FindingsPayload
 * @property {FindingPayload[]} [findings]
 * @property {string} [busy]
 */

/**
 * @typedef {Object} ProbeRow One edit under one scheme.
 * @property {string} edit
 * @property {string} scheme
 * @property {number} rollouts
 * @property {number} pays_in
 * @property {number | null} mean_gain
 * @property {number | null} largest_gain
 * @property {number | null} first_token_before
 * @property {number | null} first_token_after
 * @property {boolean} pays_for_no_content
 * @property {string} verdict
 */

/**
 * @typedef {Object} ProbesPayload
 * @property {string[]} schemes
 * @property {{ name: string, summary: string }[]} edits
 * @property {ProbeRow[]} rows
 * @property {Record<string, string>} leftOut why, by scheme
 * @property {string[]} rewards
 * @property {number} threshold
 */

/**
 * @typedef {Object} ScoresPayload Scores of one function.
 * @property {number} count
 * @property {number} unscored
 * @property {number | null} mean
 * @property {number | null} std
 * @property {number | null} low
 * @property {number | null} high
 * @property {number | null} zeros share of 0
 * @property {number[]} edges
 * @property {number[]} counts
 */

/**
 * @typedef {Object} FunctionPayload
 * @property {string} name
 * @property {string} kind
 * @property {number} weight
 * @property {ScoresPayload} scores
 * @property {{ mean: number | null }[]} positions by step; empty for an outcome function
 * @property {(number | null)[]} rows one a rollout
 * @property {number} calls
 * @property {number | null} p50 seconds
 * @property {number | null} p99 seconds
 */

/**
 * @typedef {Object} CorrelationPayload
 * @property {string} first
 * @property {string} second
 * @property {number | null} r
 * @property {number} count
 */

/**
 * @typedef {Object} WatchPayload
 * @property {FunctionPayload[]} functions
 * @property {CorrelationPayload[]} correlations
 * @property {string[]} slow
 */

/**
 * @typedef {Object} FilePayload A file to save; `once` differs for each.
 * @property {string} name
 * @property {string} text
 * @property {string} once
 */

/**
 * @typedef {Object} PagePayload What the browser tab keeps of Inspect, in parts.
 * @property {unknown} [scoring]
 * @property {unknown} [sampling]
 * @property {unknown} [run]
 * @property {Record<string, string>} [link] the address's parameters
 * @property {string} [tab] how the workbench knows this tab
 * @property {boolean} [first] what the page opened with
 * @property {boolean} [restored] what the tab had kept, or a link
 */

/**
 * @typedef {Object} ExportPayload
 * @property {string} name
 * @property {string} [type]
 * @property {string} [text]
 */

/**
 * @typedef {Object} CodePayload
 * @property {string} [code]
 * @property {string} [problem]
 */

/**
 * @typedef {Object} OptionPayload
 * @property {string} label
 * @property {string} name
 * @property {string} default
 * @property {string} help
 */

/**
 * @typedef {Object} SchemeGuide
 * @property {string} name
 * @property {string} formula
 * @property {string} source
 * @property {string} summary
 * @property {OptionPayload[]} options
 */

/**
 * @typedef {Object} MetricPayload
 * @property {string} name
 * @property {string} formula
 * @property {string} meaning
 * @property {string} source
 */

/**
 * @typedef {Object} GuidePayload What Help shows whatever is on screen.
 * @property {SchemeGuide[]} schemes
 * @property {{ name: string, meaning: string }[]} normalisations
 * @property {MetricPayload[]} metrics
 * @property {[string, string][]} symbols
 * @property {[string, string][]} shortcuts
 * @property {string} snippet
 * @property {string[]} trust
 */

/**
 * @typedef {Object} LivePayload One token's advantage, term by term.
 * @property {string} scheme
 * @property {string} formula
 * @property {string} source
 * @property {string} summary
 * @property {Record<string, string>} options
 * @property {boolean} pinned
 * @property {number} rollout from 1
 * @property {number} token from 0
 * @property {string} text
 * @property {number | null} step from 1
 * @property {NoSpreadPayload | null} noSpread
 * @property {TermPayload[]} terms
 * @property {number} total
 * @property {number | null} clip
 * @property {number} advantage
 */

export {};
