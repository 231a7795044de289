-- Removes a group and all that is its own. KEYS[7]: the topic's groups. Answers whether it was there.
local there = redis.call('SREM', KEYS[7], group)
redis.pcall('XGROUP', 'DESTROY', main, group)
redis.call('DEL', own, bell, owners, delayed, bodies)
return there
