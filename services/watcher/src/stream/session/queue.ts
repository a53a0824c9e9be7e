/**
 * A FIFO queue with amortized constant time for both operations. Each `Lane` has one for each kind of work;
 * `Array.shift` would take time in proportion to the length. Separate from `Lane`, because it knows nothing about work.
 */
export class Queue<T> {
  #items: (T | undefined)[] = [];
  #first = 0;

  get isEmpty(): boolean {
    return this.#first === this.#items.length;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    const item = this.#items[this.#first];
    if (this.isEmpty) return undefined;
    this.#items[this.#first] = undefined;
    this.#first += 1;
    if (this.#first * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#first);
      this.#first = 0;
    }
    return item;
  }
}
