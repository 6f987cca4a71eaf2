// transformers.js in Node: the token that a language model of the Hub chooses after each token of given texts.
import { AutoModelForCausalLM, Tensor } from '@huggingface/transformers';
import { answer, request } from './asked.mjs';

const said = {};
for (const dtype of request.dtypes) {
  const model = await AutoModelForCausalLM.from_pretrained(request.model, { dtype });
  said[dtype] = [];
  for (const ids of request.rows) {
    const row = (values) => new Tensor('int64', BigInt64Array.from(values, BigInt), [1, ids.length]);
    const { logits } = await model({ input_ids: row(ids), attention_mask: row(ids.map(() => 1)) });
    const [positions] = logits.tolist();
    said[dtype].push(positions.map((scores) => scores.indexOf(Math.max(...scores))));
  }
}
answer(said);
