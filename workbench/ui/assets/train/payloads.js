// The types of what the Train tab asks the server: each typedef is the TypedDict of the same name in
// handlers/run_follow.py; a test holds their keys, and what each call answers, against each other. Nothing imports this
// module when it runs.

/** @import { WhyPayload } from "../../../views/drawing/payload.js" */
/** @import { Block, PanelPayload } from "../../../views/charts/payload.js" */
/** @import { Call } from "../payloads.js" */

/**
 * @typedef {Object} LiveValue The run to show.
 * @property {string | null} run
 * @property {string} start a token of Start's answer, "" before the first
 */

/**
 * @typedef {Object} ListedRun
 * @property {string} name
 * @property {string} state
 * @property {string} reason
 * @property {string | null} behind the run that it waits for
 * @property {boolean} resumable
 * @property {number | null} step
 * @property {number | null} total
 * @property {number | null} created in seconds, as all times
 * @property {string | null} task
 * @property {string | null} scheme
 */

/**
 * @typedef {Object} Failed In place of any answer about a run that cannot be read.
 * @property {string} run
 * @property {string} error
 */

/**
 * @typedef {Object} AlarmPayload
 * @property {string} name
 * @property {string} text
 * @property {string[]} metrics the curves to look at
 */

/**
 * @typedef {Object} News What is new in a run, and how it stands.
 * @property {Record<string, unknown>[]} rows of metrics
 * @property {Block | null} block a long log, in place of its rows
 * @property {number} cursor
 * @property {boolean} restarted
 * @property {PanelPayload[] | null} panels for whoever begins to read
 * @property {string} run
 * @property {string} state
 * @property {boolean} final
 * @property {string} reason
 * @property {number} step
 * @property {number} total
 * @property {string | null} device
 * @property {number | null} started
 * @property {number} updated
 * @property {string | null} behind
 * @property {boolean} resumable
 * @property {number | null} pace in seconds a step
 * @property {number} ahead runs that a queued one waits for
 * @property {number | null} wait how long they will take, where that is known
 * @property {string | null} gives
 * @property {string[]} policies what names its policy's checkpoints, the newest first
 * @property {number | null} resumed_from
 * @property {string[]} warnings
 * @property {AlarmPayload[]} alarms
 * @property {string[]} lost metrics whose newest value is no number
 * @property {boolean} stopping
 * @property {string} method
 * @property {boolean} has_rollouts
 * @property {number[]} steps with stored rollouts
 * @property {number[]} watched steps with watched rows
 * @property {number[]} answers steps whose answers to the held-out rows are stored: the first and the newest
 * @property {string[]} log
 */

/**
 * @typedef {Object} Described
 * @property {string} run
 * @property {[string, string][]} settings
 */

/**
 * @typedef {Object} SharePayload Of the gradient, by the tokens that it comes from.
 * @property {string} name
 * @property {number} tokens
 * @property {number} share
 * @property {number} up the part of it that makes them more likely
 */

/**
 * @typedef {Object} StoredGroup
 * @property {number} step
 * @property {number} group
 * @property {number} groups
 * @property {boolean} watched
 * @property {SharePayload[]} shares
 * @property {number | null} awaited the next optimiser step over the group that is still to come, and changes its loss
 * @property {string} drawing JSON of a GroupPayload
 */

/**
 * @typedef {Object} Answer What became of a request.
 * @property {string} message
 * @property {string} level
 */

/**
 * @typedef {Object} AnswerPayload
 * @property {string} text
 * @property {boolean} right
 * @property {string | null} answer
 */

/**
 * @typedef {Object} ProblemPayload A held-out row with its answers at both measures.
 * @property {string} prompt
 * @property {AnswerPayload} before
 * @property {AnswerPayload} now
 */

/**
 * @typedef {Object} Problems
 * @property {string} run
 * @property {number} before step
 * @property {number} now step
 * @property {ProblemPayload[]} rows
 */

/** @typedef {{ run: string, step: number, group: number, watched: boolean }} GroupAsked */

/**
 * @typedef {Object} TrainServer What the Train tab may ask.
 * @property {Call<{}, ListedRun[]>} runs
 * @property {Call<{ run: string, cursor: number, after: number, after_watched: number }, News | Failed>} poll
 * @property {Call<{ run: string }, Described | Failed>} describe
 * @property {Call<GroupAsked, StoredGroup | Failed>} rollouts
 * @property {Call<GroupAsked & { rollout: number, token: number }, WhyPayload | null>} why
 * @property {Call<{ run: string }, Problems | Failed>} problems
 * @property {Call<{ run: string }, Answer>} stop
 * @property {Call<{ run: string }, Answer>} resume
 * @property {Call<{ run: string }, Answer>} start_now
 */

export {};
