// All pages but the first one, in one piece of the build.
export { Audit } from './Audit';
export { BootsOf } from './Boots';
export { Events } from './Events';
export { Machine } from './machine/Machine';
export { Asked as Operations } from './machine/Asked';
export { Overview } from './machine/Overview';
export { Timeline } from './machine/Timeline';
export { Boots } from './machine/Boots';
export { Logs } from './machine/Logs';
export { Hardware } from './machine/Inventory';
export { Network } from './machine/Network';
export { Storage } from './machine/Storage';
export { Tests } from './machine/Tests';
export { Configuration } from './machine/Configuration';
export { Decisions } from './machine/Decisions';
export { Declare } from './objects/Declare';
export { Detail } from './objects/Detail';
export { List } from './objects/List';
