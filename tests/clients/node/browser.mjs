// transformers.js in headless Chromium, on a page that this script serves: a language model of the Hub, on wasm.
import { createServer } from 'node:http';
import { createReadStream, existsSync } from 'node:fs';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import chromium from '@sparticuz/chromium';
import puppeteer from 'puppeteer-core';

const request = JSON.parse(process.argv[2]);
const HERE = fileURLToPath(new URL('.', import.meta.url));
const FOLDERS = {
  transformers: join(HERE, 'node_modules/@huggingface/transformers/dist'),
  onnxruntime: join(HERE, 'node_modules/onnxruntime-web/dist'),
};
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };

const server = createServer((asked, response) => {
  const [, folder, name] = asked.url.split(/[/?#]/);
  const file = folder in FOLDERS ? join(FOLDERS[folder], name) : join(HERE, 'page.html');
  if (!existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { 'Content-Type': TYPES[extname(file)] });
  return createReadStream(file).pipe(response);
});
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));

// Without `--disable-web-security`: the page fetches from another origin, as from the real Hub.
const args = chromium.args.filter((arg) => !arg.includes('web-security') && !arg.includes('insecure-content'));
const browser = await puppeteer.launch({ args, executablePath: await chromium.executablePath(), headless: 'shell' });
try {
  const page = await browser.newPage();
  const address = `http://127.0.0.1:${server.address().port}/`;
  await page.goto(address + '#' + encodeURIComponent(JSON.stringify(request)));
  await page.waitForFunction('window.outcome', { timeout: request.seconds * 1000 });
  await page.screenshot({ path: request.screenshot });
  const outcome = await page.evaluate('window.outcome');
  console.log(JSON.stringify({ ...outcome, browser: await browser.version() }));
} finally {
  await browser.close();
  server.close();
}
