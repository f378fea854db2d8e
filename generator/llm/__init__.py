"""Language models behind any OpenAI-compatible server: `chat.Chat` asks, and the rest of this
package keeps its budget, its cache, its cassettes and its key."""
