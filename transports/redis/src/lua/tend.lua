-- Promotes, takes back, and clears away; at most ARGV[3]. A consumer's lease stands at the end of its name, so that
-- everybody takes back by the owner's lease; another program's consumer has five minutes. A consumer goes when it is
-- idle for long and owns nothing, both checked here. Answers promoted, reclaimed, more, next, ids without a body.
local left = tonumber(ARGV[3])
local promoted, reclaimed, gone = 0, 0, {}
local t = now()
for _, member in ipairs(redis.call('ZRANGEBYSCORE', delayed, '-inf', t, 'LIMIT', 0, left)) do
  local packed = redis.call('HGET', bodies, member)
  if packed then
    local id = redis.pcall('XADD', home, '*', unpack(cmsgpack.unpack(packed)))
    if failed(id) then return error(id.err) end
    promoted = promoted + 1
  end
  redis.call('ZREM', delayed, member)
  redis.call('HDEL', bodies, member)
end
left = left - promoted
for _, key in ipairs(streams) do
  for _, c in ipairs(consumers(key) or {}) do
    local name = c['name']
    local lease = tonumber(string.match(name, '~(%d+)$')) or 300000
    if name ~= FREE and c['pending'] > 0 and left > 0 then
      local n = free(key, redis.call('XPENDING', key, group, 'IDLE', lease, '-', '+', left, name), gone)
      reclaimed = reclaimed + n
      left = left - n
    elseif name ~= FREE and c['pending'] == 0 and c['idle'] > 2 * lease + 10000 then
      redis.call('XGROUP', 'DELCONSUMER', key, group, name)
      redis.pcall('XGROUP', 'DELCONSUMER', bell, group, name)
      redis.call('HDEL', owners, name)
    end
  end
end
-- A bell may have been heard by one who died or takes nothing just now.
redis.call('XTRIM', bell, 'MAXLEN', 0)
if anyfree() then ring() end
local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
local due = first[2] and math.max(0, first[2] - t) or -1
return { promoted, reclaimed, left <= 0 and 1 or 0, due, gone }
