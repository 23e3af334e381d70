import type { LogitAdjustments, MaskDirective } from "../directive.js";
import type { SamplerConfig, SamplerStage } from "../gen/constraintd/v1/sampler_pb.js";
import { adjusted, type Candidates, maskedCandidates } from "./candidates.js";
import { firstAbove, highestOf, sumsOf, weightsOf } from "./ranking.js";
import * as stages from "./stages.js";

/** A picked token and its surprisal: -log2 of its probability after all stages, in bits, finite and >= 0. */
export interface Picked {
  readonly token: number;
  readonly surprisal: number;
}

/** What a pick takes from a Directive. */
export type PickFrom = Pick<MaskDirective, "mask" | "draw" | "adjustments" | "mu">;

/**
 * What happens to a row of logits: the mask first, then the daemon's changes to single logits, then the stages in the
 * order in which the caller gave them, then greedy or a pick by draw. Pure: a chain holds no state.
 */
export class Chain {
  readonly #stages: readonly stages.Stage[];
  readonly #greedy: boolean;

  private constructor(list: readonly stages.Stage[], greedy: boolean) {
    this.#stages = list;
    this.#greedy = greedy;
  }

  /**
   * The chain of a config as the daemon answers it, presets spelled out. Throws RangeError for a stage that is out of
   * range or stands behind greedy, TypeError for a preset, and for a stage that is newer than this client, by name.
   */
  static of(config: Pick<SamplerConfig, "stages"> & { readonly preset?: unknown }): Chain {
    if (config.preset !== undefined) {
      throw new TypeError("a preset is spelled out by the daemon: take the config of its answer (session.sampler)");
    }
    const list: stages.Stage[] = [];
    const cases: SamplerStage["stage"]["case"][] = []; // which stage each of the list is
    for (const [index, stage] of config.stages.entries()) {
      if (endsChain(stage)) {
        if (index + 1 < config.stages.length) {
          throw new RangeError(`stage ${index} is greedy, which ends the chain, but another one follows`);
        }
        // What stands right before greedy can't change which token is the most probable, and is left out.
        while (list.length > 0 && !mayDropTheHighest(cases[list.length - 1])) list.pop();
        return new Chain(list, true);
      }
      const made = stageOf(stage, index);
      if (made) {
        list.push(made);
        cases.push(stage.stage.case);
      }
    }
    return new Chain(list, false);
  }

  /**
   * A token that the mask allows. `logits` stay as they are. Throws `SamplingError` where there is none to be picked,
   * RangeError for a mask of another width or a missing mu.
   */
  pick(logits: Float32Array, { mask, draw, adjustments, mu }: PickFrom): Picked {
    const left = this.keep(logits, { mask, adjustments, mu });
    return this.#greedy ? pickGreedy(left) : pickByDraw(left, draw);
  }

  /** What is left in play before the pick, by ascending id; see `pick`. */
  keep(logits: Float32Array, { mask, adjustments, mu }: Omit<PickFrom, "draw">): Candidates {
    let candidates = maskedCandidates(logits, mask);
    if (adjustments) candidates = adjusted(candidates, adjustments);
    for (const stage of this.#stages) candidates = stage(candidates, mu);
    return this.#greedy ? highestOnly(candidates) : candidates;
  }
}

/**
 * The token with the highest logit of those that the mask allows, ties by the lowest id; adjustments count. Throws as
 * `Chain.pick`.
 */
export function pickHighest(
  logits: Float32Array,
  directive: { readonly mask: Uint32Array; readonly adjustments?: LogitAdjustments | undefined },
): number {
  const candidates = maskedCandidates(logits, directive.mask);
  return pickGreedy(directive.adjustments ? adjusted(candidates, directive.adjustments) : candidates).token;
}

/** Stages after which another token than before may have the highest logit; all others keep the most probable one. */
function mayDropTheHighest(stage: SamplerStage["stage"]["case"]): boolean {
  return stage === "typicalP" || stage === "logitBias";
}

function endsChain({ stage }: SamplerStage): boolean {
  return stage.case === "greedy" || (stage.case === "temperature" && stage.value.temperature === 0);
}

/** The stage's function; undefined for a rule of the mask, which the daemon has applied. */
function stageOf({ stage }: SamplerStage, index: number): stages.Stage | undefined {
  switch (stage.case) {
    case "temperature":
      return stages.temperature(stage.value.temperature);
    case "topK":
      return stages.topK(stage.value.k);
    case "topP":
      return stages.topP(stage.value.p);
    case "minP":
      return stages.minP(stage.value.p);
    case "typicalP":
      return stages.typicalP(stage.value.p);
    case "tailFree":
      return stages.tailFree(stage.value.z);
    case "splitP":
      return stages.splitP(stage.value.minKeep, stage.value.maxKeep);
    case "splitL":
      return stages.splitL(stage.value.minKeep, stage.value.maxKeep);
    case "mirostatV1":
      return stages.mirostatV1(stage.value.maxKeep);
    case "mirostatV2":
      return stages.mirostatV2(stage.value.maxKeep);
    case "logitBias":
      return stages.logitBias(stage.value.ids, stage.value.biases);
    case "denyRanges":
      return undefined;
    default:
      // Leaving it out would sample from another distribution than the one that was asked for.
      throw new TypeError(`stage ${index} is ${stage.case ?? "empty, or newer than this client"}, which it can't run`);
  }
}

function highestOnly({ ids, logits }: Candidates): Candidates {
  const index = logits.indexOf(highestOf(logits)); // the first of equals, and ids ascend
  return { ids: ids.slice(index, index + 1), logits: logits.slice(index, index + 1) };
}

function pickGreedy(candidates: Candidates): Picked {
  return { token: highestOnly(candidates).ids[0] as number, surprisal: 0 };
}

/**
 * The first id, ascending, at which the running sum of weights exceeds `draw` times their total. Such an id always
 * exists, and a token whose weight underflows to 0 is never picked.
 */
function pickByDraw({ ids, logits }: Candidates, draw: number): Picked {
  if (!(draw >= 0 && draw < 1)) throw new RangeError(`the draw is ${draw}; expected a number in [0, 1)`);
  const weights = weightsOf(logits);
  const sums = sumsOf(weights);
  const total = sums[sums.length - 1] as number;
  const index = firstAbove(sums, draw * total);
  // A difference of logarithms, since the quotient of a subnormal weight would be 0.
  const surprisal = Math.max(0, Math.log2(total) - Math.log2(weights[index] as number));
  return { token: ids[index] as number, surprisal };
}
