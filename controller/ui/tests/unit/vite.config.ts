import { readdirSync } from 'node:fs';
import { defineConfig } from 'vite';

// The tests as programs that Node runs by itself.
const tests = readdirSync(import.meta.dirname).filter((file) => file.endsWith('.test.ts'));

export default defineConfig({
  root: import.meta.dirname,
  build: {
    ssr: true,
    outDir: '../../build/unit',
    emptyOutDir: true,
    reportCompressedSize: false,
    rolldownOptions: { input: tests.map((file) => `${import.meta.dirname}/${file}`), output: { entryFileNames: '[name].mjs' } },
  },
  logLevel: 'warn',
});
