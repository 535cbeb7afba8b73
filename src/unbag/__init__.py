"""unbag."""
