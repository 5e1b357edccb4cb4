// A document for React, as far as the tests of pages need one: elements, texts, clicks. It has no layout and no selectors.

type Listener = (event: unknown) => void;

class Node {
  parentNode: Node | null = null;
  childNodes: Node[] = [];
  nodeValue: string | null = null;
  readonly namespaceURI = 'http://www.w3.org/1999/xhtml';
  readonly attributes = new Map<string, string>();
  readonly style = { setProperty() {} };
  readonly listeners = new Map<string, Set<Listener>>();
  readonly tagName: string;
  offsetWidth = 1000;
  offsetHeight = 1000;
  scrollTop = 0;
  readonly options = [];

  constructor(
    readonly nodeType: number,
    readonly nodeName: string,
  ) {
    this.tagName = nodeName;
  }

  get ownerDocument() {
    return page;
  }
  get firstChild(): Node | null {
    return this.childNodes[0] ?? null;
  }
  get lastChild(): Node | null {
    return this.childNodes.at(-1) ?? null;
  }
  get nextSibling(): Node | null {
    const all = this.parentNode?.childNodes ?? [];
    return all[all.indexOf(this) + 1] ?? null;
  }
  get textContent(): string {
    return this.nodeValue ?? this.childNodes.map((child) => child.textContent).join('');
  }
  set textContent(text: string) {
    this.childNodes = [];
    if (text) this.appendChild(page.createTextNode(text));
  }
  appendChild(child: Node): Node {
    return this.insertBefore(child, null);
  }
  insertBefore(child: Node, before: Node | null): Node {
    child.parentNode?.removeChild(child);
    this.childNodes.splice(before ? this.childNodes.indexOf(before) : this.childNodes.length, 0, child);
    child.parentNode = this;
    return child;
  }
  removeChild(child: Node): Node {
    this.childNodes.splice(this.childNodes.indexOf(child), 1);
    child.parentNode = null;
    return child;
  }
  setAttribute(name: string, value: unknown) {
    this.attributes.set(name, String(value));
  }
  getAttribute(name: string) {
    return this.attributes.get(name) ?? null;
  }
  hasAttribute(name: string) {
    return this.attributes.has(name);
  }
  removeAttribute(name: string) {
    this.attributes.delete(name);
  }
  addEventListener(type: string, listener: Listener) {
    this.listeners.set(type, (this.listeners.get(type) ?? new Set()).add(listener));
  }
  removeEventListener(type: string, listener: Listener) {
    this.listeners.get(type)?.delete(listener);
  }
  getBoundingClientRect() {
    return { top: 0, left: 0, width: 1000, height: 1000 };
  }
  querySelector() {
    return null;
  }
  contains() {
    return false;
  }
  focus() {}
  scrollTo() {}
  showModal() {}
  close() {}
  /** This node and all below it. */
  all(): Node[] {
    return [this, ...this.childNodes.flatMap((child) => child.all())];
  }
}

const page = Object.assign(new Node(9, '#document'), {
  defaultView: globalThis as unknown,
  hidden: false,
  activeElement: null,
  createElement: (name: string) => new Node(1, name.toUpperCase()),
  createElementNS: (_: string, name: string) => new Node(1, name),
  createTextNode: (text: string) => Object.assign(new Node(3, '#text'), { nodeValue: text }),
  createComment: (text: string) => Object.assign(new Node(8, '#comment'), { nodeValue: text }),
});
const body = page.appendChild(page.createElement('body'));

/** Before React is loaded. */
export function openPage() {
  const noop = () => {};
  Object.assign(globalThis, {
    window: globalThis,
    self: globalThis,
    origin: 'http://region',
    location: { pathname: '/ui/', search: '', hash: '', href: 'http://region/ui/', origin: 'http://region' },
    history: { state: {}, pushState: noop, replaceState: noop },
    document: Object.assign(page, { body, documentElement: body }),
    matchMedia: () => ({ matches: false, addEventListener: noop }),
    localStorage: { getItem: () => null, setItem: noop, removeItem: noop },
    navigator: { userAgent: 'tests', platform: '' },
    HTMLIFrameElement: class {},
    addEventListener: noop,
    removeEventListener: noop,
    scrollTo: noop,
    requestAnimationFrame: (then: () => void) => setTimeout(then, 0),
    cancelAnimationFrame: clearTimeout,
  });
  const root = body.appendChild(page.createElement('div'));
  const found = (name: string, text: string) => root.all().find((node) => node.nodeName === name && node.textContent === text);
  return {
    root,
    /** Waits until the page shows a text, or shows it no more. */
    async shows(text: string, shown = true) {
      const until = Date.now() + 30_000;
      while (root.textContent.includes(text) !== shown) {
        if (Date.now() > until) throw new Error(`the page ${shown ? 'does not show' : 'shows'} ${JSON.stringify(text)}: ${root.textContent}`);
        await new Promise((resolve) => setTimeout(resolve, 5));
      }
    },
    /** Presses the button with this text. */
    press(text: string) {
      const target = found('BUTTON', text);
      if (!target) throw new Error(`there is no button ${text}: ${root.textContent}`);
      fire('click', target);
    },
    /** Clicks the box with this label. */
    check(label: string) {
      const target = root.all().find((node) => node.getAttribute('aria-label') === label);
      if (!target) throw new Error(`there is no box ${label}: ${root.textContent}`);
      fire('click', Object.assign(target, { checked: true }));
    },
    submit() {
      const target = root.all().find((node) => node.nodeName === 'FORM');
      if (!target) throw new Error('there is no form');
      fire('submit', target);
    },
  };
  function fire(type: string, target: Node) {
    const event = { type, target, bubbles: true, cancelable: true, button: 0, timeStamp: Date.now(), preventDefault: noop, stopPropagation: noop };
    for (const listener of root.listeners.get(type) ?? []) listener(event);
    if (type === 'submit') for (const listener of target.listeners.get(type) ?? []) listener(event);
  }
}
