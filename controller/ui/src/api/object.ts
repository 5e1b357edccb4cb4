// Objects of any kind, as lists and watches give them.
import type { Schemas } from './client';

export type Condition = Schemas['Condition'];
export type Axes = Partial<Schemas['Axes']>;
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

export interface Metadata {
  name: string;
  uid: string;
  manager?: string;
  labels?: Record<string, string>;
  generation: number;
  created_at: string;
  updated_at: string;
  deletion_requested_at?: string | null;
}

export interface BasaltObject<Spec = Record<string, Json>, Status = Record<string, Json>> {
  kind: string;
  metadata: Metadata;
  spec: Spec;
  status: Status & { conditions?: Condition[] | null; axes?: Axes | null; phase?: string | null };
}

export type Machine = BasaltObject<Partial<Schemas['MachineSpec']>, Partial<Schemas['MachineStatus']>>;
export type Deployment = BasaltObject<Partial<Schemas['DeploymentSpec']>, Partial<Schemas['DeploymentStatus']>>;
export type Rack = BasaltObject<Record<string, Json>, Partial<Schemas['RackStatus']>>;

/** A place in the change log: `LIFE:NUMBER`, the life being the database's. */
export interface Position {
  life: string;
  number: number;
}

export function position(text: string): Position {
  const [life = '', number = '0'] = text.split(':');
  return { life, number: Number(number) };
}
