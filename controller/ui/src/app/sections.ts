// The side bar's sections, each with its kinds.

export interface Place {
  kind: string;
  plural: string;
  title: string;
}

export interface Section {
  title: string;
  places: Place[];
}

const place = (kind: string, plural: string, title: string): Place => ({ kind, plural, title });

export const SECTIONS: Section[] = [
  { title: 'Machines', places: [place('Machine', 'machines', 'Machines')] },
  { title: 'Deployments', places: [place('Deployment', 'deployments', 'Deployments')] },
  { title: 'Discoveries', places: [place('Discovery', 'discoveries', 'Discoveries')] },
  {
    title: 'Networks',
    places: [
      place('Subnet', 'subnets', 'Subnets'),
      place('Vlan', 'vlans', 'VLANs'),
      place('Fabric', 'fabrics', 'Fabrics'),
      place('Space', 'spaces', 'Spaces'),
      place('IpRange', 'ip_ranges', 'Ranges'),
      place('IpAddress', 'ip_addresses', 'Addresses'),
      place('StaticRoute', 'static_routes', 'Routes'),
      place('Device', 'devices', 'Devices'),
    ],
  },
  { title: 'DNS', places: [place('Domain', 'domains', 'Domains'), place('DnsRecord', 'dns_records', 'Records')] },
  {
    title: 'Images',
    places: [
      place('Image', 'images', 'Images'),
      place('ImageSource', 'image_sources', 'Sources'),
      place('Script', 'scripts', 'Scripts'),
      place('PackageRepository', 'package_repositories', 'Repositories'),
    ],
  },
  { title: 'Racks', places: [place('Rack', 'racks', 'Racks')] },
  {
    title: 'Places',
    places: [place('Zone', 'zones', 'Zones'), place('Pool', 'pools', 'Pools'), place('Tag', 'tags', 'Tags')],
  },
  {
    title: 'Access',
    places: [
      place('User', 'users', 'Users'),
      place('Role', 'roles', 'Roles'),
      place('ApiToken', 'api_tokens', 'Tokens'),
      place('SshKey', 'ssh_keys', 'SSH keys'),
    ],
  },
  { title: 'Events', places: [] },
  { title: 'Audit', places: [] },
  { title: 'Settings', places: [place('Settings', 'settings', 'Settings'), place('Webhook', 'webhooks', 'Webhooks')] },
];

export const PLACES: Place[] = SECTIONS.flatMap((section) => section.places);

export const placeOf = (plural: string): Place | undefined => PLACES.find((place) => place.plural === plural);
export const placeOfKind = (kind: string): Place | undefined => PLACES.find((place) => place.kind === kind);
export const sectionOf = (plural: string): Section | undefined =>
  SECTIONS.find((section) => section.places.some((place) => place.plural === plural));

/** Where an object's page is. */
export const pageOf = (plural: string, name: string): string => `/${plural}/${encodeURIComponent(name)}`;
