// Steps of the speed model with their operators.

export interface Operator {
  name: string;
  share: number;
  seconds: number;
  flops?: number;
  bytes?: number;
  limiter?: string;
  sources?: string[];
}

export interface OperatorStep {
  name: string;
  seconds: number;
  limiter: string;
  operators: Operator[];
}
