// transformers.js in Node: a language model of the Hub, greedy tokens.
import { AutoModelForCausalLM, AutoTokenizer } from '@huggingface/transformers';
import { answer, request } from './asked.mjs';

const tokenizer = await AutoTokenizer.from_pretrained(request.model);
const model = await AutoModelForCausalLM.from_pretrained(request.model, { dtype: request.dtype });

async function continued(inputs) {
  const tokens = await model.generate({ ...inputs, max_new_tokens: request.new_tokens, do_sample: false });
  return tokens.slice(null, [inputs.input_ids.dims[1], null]).tolist().map((row) => row.map(Number));
}

tokenizer.padding_side = 'left';
const alone = [];
for (const text of request.prompts) alone.push((await continued(tokenizer(text)))[0]);
const batch = await continued(tokenizer(request.prompts, { padding: true }));
const chat = tokenizer.apply_chat_template(request.chat, { add_generation_prompt: true, return_dict: true });
const ids = request.prompts.map((text) => tokenizer.encode(text));
answer({ alone, batch, chat: (await continued(chat))[0], ids });
