/**
 * Type of Trusted Types (W3C), which TypeScript's DOM library lacks. `setHtml` uses them, because the content security
 * policy of the status page requires them.
 */
interface Window {
  readonly trustedTypes?: {
    createPolicy(name: string, rules: { createHTML(text: string): string }): { createHTML(text: string): string };
  };
}
