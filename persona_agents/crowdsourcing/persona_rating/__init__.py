"""The rating task. Everything here but `analysis` needs Mephisto, mended by `crowdsourcing.compat`."""
