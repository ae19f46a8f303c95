"""The page of a comparison: its pictures, and its tables around them."""
