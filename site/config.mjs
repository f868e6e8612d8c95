// The site of the documents, which make site builds with VitePress from a copy of the repository's pages in out/site.
import {copyFileSync, mkdirSync, readFileSync, writeFileSync} from 'node:fs';
import {dirname, join, posix} from 'node:path';
import {fileURLToPath} from 'node:url';

const repository = 'https://github.com/jetpull/jetpull';
const version = process.env.SITE_VERSION || 'main';
const base = process.env.SITE_BASE || '/';
const source = fileURLToPath(new URL('..', import.meta.url));
const groups = JSON.parse(readFileSync(new URL('../pages.json', import.meta.url), 'utf8'));
const pages = Object.values(groups).flat();
const known = new Set(pages.map(([path]) => path));
const route = (path) => path === 'README.md' ? 'index.md' : path.replace(/README\.md$/, 'index.md');
const link = (path) => '/' + route(path).replace(/(index)?\.md$/, '');

// A link to a file that is no page leads to the repository, and braces in code are no expression of Vue.
function plain(md) {
  md.core.ruler.push('plain', (state) => {
    for (const token of state.tokens) if (token.type === 'code_block') token.attrSet('v-pre', '');
    for (const token of state.tokens.flatMap((t) => t.children ?? [])) {
      if (token.type === 'code_inline') token.attrSet('v-pre', '');
      if (token.type !== 'link_open') continue;
      const href = token.attrGet('href');
      if (/^([a-z]+:|#|\/)/i.test(href)) continue;
      const [path, hash] = href.split('#');
      const page = posix.relative(source, state.env.realPath ?? state.env.path);
      let target = posix.normalize(posix.join(posix.dirname(page), path)).replace(/\/$/, '');
      if (known.has(target + '/README.md')) target += '/README.md';
      const to = known.has(target) ? link(target) : `${repository}/blob/${version}/${target}`;
      token.attrSet('href', to + (hash ? '#' + hash : ''));
    }
  });
}

// Headings have the anchors that they have on GitHub, which the pages link to.
const slugify = (text) => text.trim().toLowerCase().replace(/[^\p{L}\p{N}\s_-]/gu, '').replace(/\s/g, '-');

export default {
  title: 'jetpull', description: 'Workers on NATS JetStream, a webhook broker, a webhook relay, a feed of work and a console',
  base, cleanUrls: true, 
  rewrites: Object.fromEntries(pages.map(([path]) => [path, route(path)])),
  // Pages are plain Markdown: tags in a text are shown as they are.
  markdown: {html: false, anchor: {slugify}, languageAlias: {conf: 'ini'}, config: plain},
  themeConfig: {
    search: {provider: 'local'},
    nav: [
      ...Object.entries(groups).map(([text, of]) => ({text, link: link(of[0][0])})),
      {text: version, items: [{text: 'All versions', link: 'https://jetpull.github.io/jetpull/'}, {text: 'llms.txt', link: `${base}llms.txt`, target: '_blank'}]},
    ],
    sidebar: Object.entries(groups).map(([text, of]) => ({text, items: of.map(([path, text]) => ({text, link: link(path)}))})),
    socialLinks: [{icon: 'github', link: repository}],
    outline: [2, 3],
  },
  // Each page is also there as Markdown, and llms.txt lists these.
  buildEnd({outDir, srcDir}) {
    const lines = ['# jetpull', '', '> Workers on NATS JetStream, a webhook broker, a webhook relay, a feed of work and a console.'];
    for (const [group, of] of Object.entries(groups)) {
      lines.push('', `## ${group}`, '');
      for (const [path, title] of of) {
        const to = route(path);
        mkdirSync(dirname(join(outDir, to)), {recursive: true});
        copyFileSync(join(srcDir, path), join(outDir, to));
        lines.push(`- [${title}](${base}${to})`);
        // VitePress goes on after a page that it cannot render.
        if (!readFileSync(join(outDir, to.replace(/md$/, 'html')), 'utf8').includes('<h1')) throw new Error(`${path} could not be rendered`);
      }
    }
    writeFileSync(join(outDir, 'llms.txt'), lines.join('\n') + '\n');
  },
};
