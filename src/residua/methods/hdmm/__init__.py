"""HDMM: strategies of products, unions of products and marginals, for Gaussian and for Laplace noise."""
