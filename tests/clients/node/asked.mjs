// What both scripts do: read the request, and point transformers.js at the Hub of the tests and a cache of its own.
import { env } from '@huggingface/transformers';

export const request = JSON.parse(process.argv[2]);

env.allowLocalModels = false;
env.remoteHost = request.endpoint;
env.cacheDir = request.cache;

export const answer = (value) => console.log(JSON.stringify(value));
