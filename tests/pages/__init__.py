"""The pages about how to do something, as a reader types them."""
