"""Whether a CTA reads all that its tile of C is made of."""
