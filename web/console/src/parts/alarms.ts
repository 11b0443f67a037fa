// What needs somebody first: not acknowledged, the gravest, the newest.
export interface Alarm {
  token: string
  originatorToken: string | null
  alarmKey: string
  metricKey: string
  state: 'ACTIVE' | 'CLEARED'
  acknowledged: boolean
  severity: string
  raisedTime: string | null
  clearedTime: string | null
  acknowledgedTime: string | null
  acknowledgedBy: string | null
  lastValue: number | null
}

export const severities = ['CRITICAL', 'MAJOR', 'MINOR', 'WARNING', 'INDETERMINATE']

export function byUrgency(a: Alarm, b: Alarm): number {
  return Number(a.acknowledged) - Number(b.acknowledged) || severities.indexOf(a.severity) - severities.indexOf(b.severity) ||
    (b.raisedTime ?? '').localeCompare(a.raisedTime ?? '')
}
