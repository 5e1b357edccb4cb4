import { useMachine } from './Machine';
import { ConfigurationOf } from '../objects/Configuration';

export function Configuration() {
  return <ConfigurationOf plural="machines" object={useMachine() as never} />;
}
