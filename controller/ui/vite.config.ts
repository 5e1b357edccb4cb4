import { defineConfig } from 'vite';

// For `vite` and `vite preview`: the region whose API answers.
const proxy = Object.fromEntries(
  ['/api', '/readyz', '/version', '/openapi.json'].map((path) => [path, { target: process.env.REGION ?? 'http://127.0.0.1:5240' }]),
);

// Served by the region below /ui/.
export default defineConfig({
  base: '/ui/',
  build: {
    target: 'es2022',
    // The region's policy lets nothing in that is no file of it.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // The licences of all code in the build. The licences of the fonts are in public.
    license: { fileName: 'licences.md' },
    chunkSizeWarningLimit: 1000,
    rolldownOptions: {
      onwarn: (warning, warn) => {
        // Libraries say "use client" for servers that draw pages: here is none.
        if (warning.code !== 'MODULE_LEVEL_DIRECTIVE') warn(warning);
      },
    },
  },
  worker: { format: 'es' },
  server: { proxy },
  preview: {
    proxy,
    headers: { 'content-security-policy': "default-src 'self'; frame-ancestors 'none'; object-src 'none'; form-action 'none'; base-uri 'none'" },
  },
});
