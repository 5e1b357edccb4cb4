// The account that commissioning made on a BMC, as a sentence.
import type { Schemas } from '../../api/client';
import type { Tone } from '../../parts/state';

export function accountOf({ checked, refused }: Pick<Schemas['BmcAccountStatus'], 'checked' | 'refused'>): { tone: Tone; words: string } {
  if (refused) return { tone: 'bad', words: 'racks could not use it; they use the declared account' };
  return checked ? { tone: 'ok', words: 'a rack has used it' } : { tone: 'busy', words: 'no rack has used it yet' };
}
