import './style/base.css';
import { QueryClient, QueryClientProvider } from '@tanstack/react-query';
import { createRoot } from 'react-dom/client';
import { App } from './app/App';
import { Refused } from './api/client';
import { show, showDensity } from './app/theme';

show();
showDensity();
// The page at the top of the region is the list of machines.
if (location.pathname === '/') history.replaceState(null, '', '/ui/machines');

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      refetchOnWindowFocus: false,
      // A browser says that it is offline when its host has no way out of the site. The region is in the site.
      networkMode: 'always',
      // A refusal stays one; a region that is away comes back.
      retry: (count, error) => count < 3 && error instanceof Refused && (error.status === 0 || error.status === 503),
    },
  },
});

const root = document.getElementById('root');
if (root) {
  createRoot(root).render(
    <QueryClientProvider client={queries}>
      <App />
    </QueryClientProvider>,
  );
}
