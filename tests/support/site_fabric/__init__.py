"""A package of a site, as others write it: a source, a rule, a metric with its chart and a transport."""
