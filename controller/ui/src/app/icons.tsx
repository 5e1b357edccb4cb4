// One line of a drawing each, in a square of 16.
const PATHS: Record<string, string> = {
  mark: 'M8 1 15 8 8 15 1 8ZM8 5 11 8 8 11 5 8Z',
  Machines: 'M2 3h12v4H2zM2 9h12v4H2zM4 5h1M4 11h1',
  Deployments: 'M8 2v8M5 7l3 3 3-3M2 13h12',
  Discoveries: 'M7 2a5 5 0 1 0 0 10A5 5 0 0 0 7 2zM11 11l3 3',
  Networks: 'M8 2v4M3 14v-4h10v4M8 6v4M6 2h4M1.5 14h3M11.5 14h3',
  DNS: 'M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM1.5 8h13M8 1.5c-4 4-4 9 0 13M8 1.5c4 4 4 9 0 13',
  Images: 'M2 4l6-2.5L14 4v8l-6 2.5L2 12zM2 4l6 2.5L14 4M8 6.5v8',
  Racks: 'M3 1.5h10v13H3zM3 6h10M3 10h10M5 4h1M5 8h1M5 12h1',
  Places: 'M8 14.5s5-4.7 5-8a5 5 0 0 0-10 0c0 3.3 5 8 5 8zM8 5a1.5 1.5 0 1 0 0 3 1.5 1.5 0 0 0 0-3z',
  Access: 'M5 6.5V5a3 3 0 0 1 6 0v1.5M3 6.5h10v7.5H3zM8 9v2.5',
  Events: 'M1.5 8h3l2-5 3 10 2-5h3',
  Audit: 'M3 1.5h7l3 3v10H3zM5.5 7h5M5.5 9.5h5M5.5 12h3',
  Settings: 'M2 4h7M12 4h2M2 8h2M7 8h7M2 12h7M12 12h2M9 2.5v3M7 6.5v3M9 10.5v3',
  lock: 'M5.5 7V5a2.5 2.5 0 0 1 5 0v2M4 7h8v6.5H4z',
  theme: 'M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11z',
};

export function Icon({ name }: { name: string }) {
  return (
    <svg width="16" height="16" viewBox="0 0 16 16" aria-hidden="true" style={{ flex: 'none' }}>
      {name === 'theme' && <path d="M8 2.5a5.5 5.5 0 1 0 0 11z" fill="currentColor" />}
      <path d={PATHS[name] ?? ''} fill="none" stroke="currentColor" strokeWidth="1.25" strokeLinejoin="round" />
    </svg>
  );
}
