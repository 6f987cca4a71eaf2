// transformers.js in Node: the feature-extraction pipeline over a sentence model of the Hub.
import { pipeline } from '@huggingface/transformers';
import { answer, request } from './asked.mjs';

const extract = await pipeline('feature-extraction', request.model, { dtype: request.dtype });
const embeddings = await extract(request.texts, { pooling: 'mean', normalize: true });
answer({ embeddings: embeddings.tolist() });
