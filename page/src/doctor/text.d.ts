declare module "*.log" {
  const text: string;
  export default text;
}
