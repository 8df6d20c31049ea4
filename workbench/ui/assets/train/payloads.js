// What the server answers to the Train tab: the TypedDicts of handlers/run_follow.py, and of runs what RunSummary holds.
// @ts-check

/**
 * @typedef {{text: string, metrics: string[]}} Alarm
 * @typedef {{name: string, state: string, reason: string, behind: string | null, resumable: boolean, step: number,
 *   total: number, created: number, task: string | null, scheme: string | null}} ListedRun
 * @typedef {{steps: string[], values: Record<string, [number, string]>}} Block
 * @typedef {{run: string, state: string, final: boolean, reason: string, step: number, total: number,
 *   device: string | null, started: number | null, updated: number, behind: string | null, resumable: boolean,
 *   gives: string | null, resumed_from: number | null, warnings: string[], alarms: Alarm[], stopping: boolean, restarted: boolean,
 *   rows: Record<string, unknown>[], block: Block | null, cursor: number, panels: object[] | null,
 *   method: string, has_rollouts: boolean, steps: number[], watched: number[], log: string[]}} News
 * @typedef {{run: string, settings: [string, string][]}} Described
 * @typedef {{step: number, group: number, groups: number, watched: boolean, drawing: string}} StoredGroup
 * @typedef {{message: string, level: string}} Answer
 */
export {};
